"""A pipeline that tells three kinds of wine apart by named features, and 20 wines that it was not trained on."""

from sklearn.datasets import load_wine
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

wine = load_wine(as_frame=True)
kind = wine.target_names[wine.target]
held_out = wine.data.index % 9 == 0
pipeline = make_pipeline(StandardScaler(), MLPClassifier((16,), max_iter=1000, random_state=0))
pipeline.fit(wine.data[~held_out], kind[~held_out])
X, y = wine.data[held_out], kind[held_out]
